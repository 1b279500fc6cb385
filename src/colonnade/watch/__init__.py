"""`colonnade watch`: a page on this machine that follows a simulation or a real federation."""
