"""The loader that production imports: rows looked up by product, where Inductor chooses kernels."""
