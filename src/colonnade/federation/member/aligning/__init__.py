"""Matching the rows of real parties: who asks whom, and what each one keeps."""
