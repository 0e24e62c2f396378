# SPDX-License-Identifier: Apache-2.0
"""A client of the inference server inferd.

Client blocks, AsyncClient is for asyncio; both take and give numpy arrays. The protocol is in
docs/protocol.md of inferd.
"""
from .aio import AsyncClient
from .messages import (InferenceError, Model, ModelMetadata, Result, ServerMetadata, Tensor,
                       Timing)
from .blocking import Client

__all__ = ["AsyncClient", "Client", "InferenceError", "Model", "ModelMetadata", "Result",
           "ServerMetadata", "Tensor", "Timing"]
__version__ = "0.1.0"
