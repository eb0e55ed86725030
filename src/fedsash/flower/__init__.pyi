from .averaged import Averaged as Averaged
from .client import client_app as client_app
from .nodes import FlowerClients as FlowerClients
from .real_time import RealTime as RealTime
from .roll_call import Waiting as Waiting
from .settings import NamedModel as NamedModel
