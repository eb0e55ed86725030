"""A name for each space that a federation's vectors lie in: type checkers keep apart what is a tensor at run time.

Code of one's own gets them as plain `Tensor` and `Vectors`, which they are, and returns plain ones; what calls it says
in which space the result lies. `WholeModel(w)` is `w` itself. A model and a change of it lie in the same space, also
with first dimensions: `[C, D]` are the models of C clients.
"""

from __future__ import annotations

from typing import NewType

from torch import Tensor

WholeModel = NewType("WholeModel", Tensor)
"""`[D]`: all entries of a model, in the order of `Sharing`."""

CommonPart = NewType("CommonPart", Tensor)
"""`[S]`: its common parameters, all that methods, rules and server optimisers see, which call their number D. Where
nothing stays with clients and there are no statistics, it is the whole model."""

Uploaded = NewType("Uploaded", dict[str, Tensor])
"""`[b, ...]`: what some clients send, a row each."""

MeanUpload = NewType("MeanUpload", dict[str, Tensor])
"""The mean of what the accepted clients of a round sent, or of what the rule derived from it."""

Download = NewType("Download", dict[str, Tensor])
"""What clients receive beside the model: the method's vectors, and the means of a probe."""

ClientState = NewType("ClientState", dict[str, Tensor])
"""What one client remembers, or `[b, ...]` some clients: the method's vectors, kept moments, the own part."""

ClientRows = NewType("ClientRows", dict[str, Tensor])
"""`[N, ...]`: what all clients remember, a row each."""

ServerState = NewType("ServerState", dict[str, Tensor])
"""What the method remembers at the server."""

OptimiserState = NewType("OptimiserState", dict[str, Tensor])
"""What the server optimiser remembers."""

AggregationMemory = NewType("AggregationMemory", dict[str, Tensor])
"""What the aggregation rule remembers."""

ExecutorMemory = NewType("ExecutorMemory", dict[str, Tensor])
"""What an executor remembers between two rounds."""
