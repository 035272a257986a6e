"""Where untrusted programs run: a package of its own, started by path, that never holds torch.

server.py takes programs one at a time; isolation.py is what the kernel keeps from them; referee.py decides
whether one passes; carrying.py is what may pass between a program and its tests.
"""
