from .averaged import Averaged as Averaged
