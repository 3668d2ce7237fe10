"""Our own processes: how they start fast, talk to each other and leave nothing behind.

`fork_server` forks children from a process that has imported what they need (`preload`), and
`forked_program` makes such a fork a program. `module_command` starts a module in a fresh Python.
`connection` carries messages, bytes and open descriptors between processes, and `handshake` lets
two processes show each other that they hold the same key; a `door` admits callers that do.
`missing_peers` is a small process that says which peers a task waits for. In a `private_network`,
no other user reaches the ports of TensorFlow's servers. No TensorFlow is imported here.

A launcher that can still act ends what it has started: by `close`, at the end of a `with` block.
Who does it if the process that started something was killed:

| what was started                        | is ended by                                           |
|-----------------------------------------|-------------------------------------------------------|
| a program or a cold task, all it starts | `keeper`, which finds them by their mark (`registry`) |
| a fork server                           | itself: its socket to the parent ends                 |
|   while it imports                      | `lifetime.ending_with_parent`, a thread               |
| a child of a fork server                | its server; if that is killed, `die_with_parent`      |
| an engine's driver, a cluster for trial | the driver: its standard input ends; a `keeper`       |
| an agent, wherever it is                | itself: its connection to the launcher ends           |
|   if Ray or Spark has started it        | itself: its standard input ends (DISTLAB_AGENT_PIPE)  |
| a task of a rendezvous                  | the `distlab run` of its machine; a `keeper` there    |
| a submission that is graded             | bubblewrap's --die-with-parent, for the namespace     |
| `missing_peers`                         | itself: its standard input ends                       |

Each has its reason. A program knows nothing of us, so that only another process can end it, and
what it starts may leave its process group, so that only a mark finds it. A fork server knows its
children's groups, and needs no other process. An agent is on another machine. `distlab processes
stop` ends what carries a mark where even the keeper was killed.
"""
