"""Every torch function a forward calls, noted as it runs."""
