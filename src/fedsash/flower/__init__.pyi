from .averaged.strategy import Averaged as Averaged
from .nodes.client import client_app as client_app
from .nodes.on_grid import FlowerClients as FlowerClients
from .real_time.site import RealTime as RealTime
from .nodes.roll_call import Waiting as Waiting
from .nodes.settings import NamedModel as NamedModel
