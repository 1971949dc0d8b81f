"""MasterService: requests of clients and operators, and the changes that they cause."""
