"""What tests share: judges that decide whether two runs are the same, small models, cases."""
