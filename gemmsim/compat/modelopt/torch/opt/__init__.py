"""``modelopt.torch.opt``: models with quantisers written to files and read back. The files are gemmsim's own."""

from .conversion import modelopt_state, restore, restore_from_modelopt_state, save

__all__ = ["modelopt_state", "restore", "restore_from_modelopt_state", "save"]
