"""What the Triton kernels share: shapes of launches, and compiling them without a GPU.

Importing this package loads no Triton; each op's ``kernel.py`` does, when it is first called.
"""
