"""Who a party is: keys, certificates, and the authority that signs them."""
