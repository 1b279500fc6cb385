"""A real federation: one process per party, and the certificates by which they know each other.

From the bottom up: `keys` (who a party is), `agreement` (what all parties have agreed on), `member`
(the life of a party), `asking` (questions to running parties).
"""
