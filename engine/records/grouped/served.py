"""Grouped products that rows of torch.compile serve. Needs the standard library alone."""

LAYOUTS = {"rows": ("nn", "nt"), "inner": ("tn",)}
"""Layouts of A and B by form, which QuACK's kernels read: A k-major, or for groups of k A m-major and B n-major."""
GENERATIONS = (9, 10)
"""Major compute capabilities on which torch multiplies all groups in one launch; on others it loops on the host."""
