"""Configuration of the servers by flags, STOKER_* variables and a TOML file, by one name each."""
