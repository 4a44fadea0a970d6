"""Workers, clients, supervisors and operators, as the dispatcher knows them."""
