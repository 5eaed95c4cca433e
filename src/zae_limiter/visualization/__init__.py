"""Usage as pictures: in the terminal (extra ``plot``) and in a file (extra ``report``)."""
