"""The kinds of messages that belong to no exchange.

- HEARTBEAT: the position of the sender in a program.
- NACK, a negative acknowledgement: the sender waits at this program counter, and the receiver's
  message has not come.
- GONE: the answer to a NACK for a message that the sender no longer has.
- START: where the generation of the program's leader began.
- CALL: a request to all parties, such as a prediction; the note says what is asked for.
- PARTS: which versions of the model the sender keeps.
- LABELS: which rows the sender has labels of, where several parties hold labels.
- TWICE: the receiver's party has two processes; the note says which of them the sender listens to.
- WEIGHTS: the note is a digest of the weights with which the sender begins a validation.
- BEFORE: the newest program counter that an earlier process of the receiver's party had reached, as
  far as the sender knows, and the note of its newest WEIGHTS. Sent to each process that comes.
"""

from __future__ import annotations

HEARTBEAT, NACK, GONE, START = "heartbeat", "nack", "gone", "start"
CALL, PARTS, TWICE, LABELS = "call", "parts", "twice", "labels"
BEFORE, WEIGHTS = "before", "weights"
EVERYONE = "everyone"  # the group of all parties, which such messages are addressed in
