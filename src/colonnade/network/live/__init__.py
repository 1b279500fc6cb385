"""Real parties: they crash, return and lag, and messages are late, lost, doubled or hostile.

post.py sends, receives and checks messages, with the help of generations.py (leaders and their
programs), peers.py, presence.py and lives.py (the other parties) and resend.py (messages that may
be asked for again). waiting.py, commits.py and network.py are the network that a program runs on.
joining.py and following.py decide at which round a party goes on after a crash.
"""
