"""Where arithmetic runs. Each backend computes the same bits for the same spec; nothing is loaded until first used."""
