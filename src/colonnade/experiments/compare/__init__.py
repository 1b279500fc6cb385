"""`colonnade compare`: every method that suits some data, each with settings found on the
validation rows, under the same faults and seeds; and which one to choose, from the figures."""
