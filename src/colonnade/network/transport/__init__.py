"""How messages travel: in memory and virtual time, or between machines by Zenoh."""
