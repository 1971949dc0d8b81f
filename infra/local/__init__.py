"""A whole stack on one machine: broker, master and tablet servers as supervised child processes.

`nyala up`, the demo, the benchmarks and the tests all use `Supervisor`.
"""

from .children import Child, ChildState, text_of
from .control import call, serve, start_detached, stop
from .state import StackError, is_running, read_state
from .supervisor import SERVERS_MAX, StackOptions, Supervisor, prepare
