"""The operations under the engine's models: one folder an op, each usable alone.

``<op>/reference.py`` is the definition in plain torch, ``<op>/op.py`` checks its arguments and
chooses a backend by device; a C++ or Triton kernel of the same op lies beside them. Import an op
from its folder: ``from agentspec_kernels.rms_norm import rms_norm``. Importing this package loads
nothing.

Read next: ``backend.py`` (how a backend is chosen), ``paged_attention/layout.py`` (the page pool).
"""
