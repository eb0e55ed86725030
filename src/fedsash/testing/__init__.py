"""Small federations and checks for your own methods, averages, servers, engines and clients.

For example, `check_method(Mine())` raises `AssertionError` with one sentence that names the identity that does not
hold. The library's own tests call these functions, too. The strategies for Hypothesis are in
`fedsash.testing.examples`, which must be imported by itself.
"""

from .averages import check_average
from .callbacks import check_callback
from .drawing import check_local_schedule, check_partition, check_sampling, check_schedule
from .equality import Comparison, close, equal, identical, record
from .examples import examples
from .executors import check_clients, check_executor
from .fakes import FakeClients
from .federations import check_federation
from .methods import check_aggregation, check_method, check_server
from .tracking import TrackingAdapter, TrackingResult, check_tracking, tracking_results
from .worlds import after, quadratic_federation, small_data, small_federation, small_model

__all__ = [
    "Comparison",
    "FakeClients",
    "TrackingAdapter",
    "TrackingResult",
    "after",
    "check_aggregation",
    "check_average",
    "check_callback",
    "check_clients",
    "check_executor",
    "check_federation",
    "check_local_schedule",
    "check_method",
    "check_partition",
    "check_sampling",
    "check_schedule",
    "check_server",
    "check_tracking",
    "close",
    "equal",
    "examples",
    "identical",
    "quadratic_federation",
    "record",
    "small_data",
    "small_federation",
    "small_model",
    "tracking_results",
]
