"""The life of a party: it trains with the others, keeps its state, tests, and answers questions."""
