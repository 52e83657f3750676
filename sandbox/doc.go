// Package sandbox runs a permitted call, and nothing else.
//
// Every effect, a file tool's too unless it is configured otherwise, happens in a
// child process that confines itself and only then acts, so that one fence of the
// kernel covers all of them.
// A call enters by [Workspace.Run] with a [policy.Permit], or by [Workspace.Exec],
// which is the same on the caller's streams; there is no other way in, and a permit
// that permits nothing runs nothing.
//
// # What a mode promises
//
// Under read-only a call changes no file but /dev/null. Under workspace-write it
// changes files in the workspace and in the workspace's private temp directory.
// Under both it can neither inspect nor trace a process outside of the call, make
// a unix socket, nor read the paths in Config.Hidden, the workspaces of other
// trees that are known here, or the temp directory of another workspace.
// Under danger-full-access there is no fence: the call is as free as its user.
//
// Under every mode a call gets an environment built from a list, no inherited
// descriptor, no terminal, and no input. Everything a command started is gone when
// Run returns, however it ended: by itself, by its timeout, by ctx, by the end of its
// lease, or by the death of this process. A lease also ends calls while this
// process is stopped.
//
// If the host cannot confine a call it is refused with [CodeUnavailable]. It
// never runs with less than all of its fence.
//
// # Tiers
//
// Landlock and seccomp hold every confined call. What holds it besides depends on
// the host, and [New] finds out by running a call that attacks:
//
//   - namespaces: mounts, processes and System V IPC of the call's own. All that is
//     mounted is read-only, but for what the mode lets it write, and it has a
//     /dev/shm of its own. It takes CAP_SYS_ADMIN, or user namespaces.
//   - uid: the call runs as a user that only its tree has. It takes root, and a
//     workspace that belongs to that user.
//   - landlock: neither.
//
// The best one is used that the host and the workspace allow. A deployment that
// requires a stronger one has the call refused. [Result.Sandbox] says which it was,
// how much of the mode's promise it keeps, and what it leaves open: see the gaps.
//
// # Users
//
// Where this process can switch users, each tree has one of its own, derived from
// the id of its root, the same on every worker. A workspace belongs to the tree if
// its directory has that owner and can be reached by it; then all calls of the tree
// run as that user, in every tier, and no other tree works on its files. A workspace that is empty, but for a mark, and belongs to this
// process's user is given to the tree whose session opens it first. In any other,
// confined calls run as this process's user; as root they keep the capabilities
// that build tools need on their own files. A danger-full-access call runs as the
// tree's user everywhere, unless the deployment has it run as this process's.
//
// # Network
//
// A call's network is what its decision says. deny is no socket at all, but for
// connected pairs. allow is sockets of IPv4, IPv6 and rtnetlink, on the host's
// network: all of it, its loopback interface included. loopback is a network of
// the call's own with nothing else, which takes namespaces. Unix sockets are
// refused in all three.
//
// # How
//
// A small program, the launcher, is started for each call, or before it: with
// Config.Warm some wait, with nothing of any call, and end with this process. It is
// embedded here and run from a sealed file in memory, or from a file of the temp
// directory that has lost its name where such files may not be executed. It gets its
// order over a socket on descriptor 3, so that nothing shows in its arguments or
// environment:
//
//	worker ── order, renewals ──> launcher ── fork on a confined thread ──> command
//	       <─ ready, ending ────
//
// In order:
//
//  1. It closes what it inherited, forbids to be traced, becomes the reaper of all
//     below it, makes its namespaces what the call may see, and opens the workspace
//     anew.
//  2. One fresh thread drops capabilities, becomes the tree's user, sets
//     no_new_privs, enters a Landlock domain and a seccomp filter, and forks. The
//     child inherits all of that.
//  3. The launcher, outside of the fence, waits for the child, for the end of the
//     socket, the timeout or the lease, and then stops and kills all descendants
//     until none is left.
//
// # File operations
//
// They keep to the workspace and its temp directory, for reading as well, and work
// through [os.Root], so they can name the resolved path of what they refuse. They
// have two homes. By default it is a helper: a launcher that confines a thread as
// for a command and executes itself on it, so that one process is left, all of it
// inside. Its fence lets it read no more than the two directories.
//
//	worker ── jobs ─────> helper      one at a time, over the socket that is
//	       <─ answers ───             its standard input
//	       ── renewals ─>             over descriptor 3
//
// A Workspace has at most one helper, started for its first file operation, on one
// mode and one user. A call on others ends it first, and begins when it is gone.
// Otherwise it stays until the workspace is closed, this process is gone, or the
// lease of its last call is over, also while this process is stopped. Operations
// wait for each other, no longer than their own time. A helper that ends before it
// has read a job is replaced once; one that ends in the middle is [ErrLost].
//
// The other home is this process, by Config.FilesInProcess. It looks at its lease
// before each effect, and cannot be ended in the middle of a system call. What must
// run as a tree's user has the helper all the same.
//
// # Limits
//
// A command is held to the limits of its permit, under every mode, and a result names
// the one that ended it, in [Result.Limit]. Zero is no limit. File operations have a
// minute, and bounds of their own on what they read and write.
//
//   - time: of a call that names none.
//   - cpu: of one process. At the limit it gets SIGXCPU; one that does not heed it,
//     as programs in Go do not, is killed five seconds of its time later.
//   - file-size: a process that writes beyond it gets SIGXFSZ, and an error if it
//     does not heed that.
//   - open-files: descriptors of one process. One more is an error.
//   - output: bytes of both streams together. One more ends the call; what came before
//     is shown as ever. Streams of the caller's own are not counted.
//   - processes: of the call, where this process may make cgroups below its own that
//     count them: as root on most hosts, as anybody else where they were delegated,
//     and in a container where they can be written. Threads count. One more is refused
//     by the kernel, and ends the call within a tenth of a second. Elsewhere there is
//     no such limit, which [Runner.Uncounted] and [Runner.Report] say. On version 2 of
//     cgroups counting by threads is turned on in this process's own cgroup, and left
//     on. A danger-full-access call as root can leave its cgroup.
//
// None is raised above what this process was started with. A command may lower them
// further; only danger-full-access as root, with CAP_SYS_RESOURCE, may raise them.
// What a result says of cpu, file-size and open-files is read from how the command
// ended: by that signal or, as shells do, with 128 and its number; killed, having used
// that much; or failed, with words about a file too large or too many open files on its
// standard error. Of a process in the middle of a command nothing is known.
//
// # Output
//
// Of each stream of a shell call the head and the tail are shown, and the process
// that runs the call takes the rest. A stream that is longer goes to a file in the
// workspace's temp directory, from its first byte, and the line between head and
// tail names it. Every later call in the same Workspace can read it; it goes with
// the directory. Of one stream 8 MiB are kept and of all together 64 MiB, under
// every mode: where less is kept, the line says so. File operations bound what
// they show as well, and say how to ask for more.
//
// # What is left of the dead
//
// A temp directory is held by a lock that goes with the last process that was given
// it. [Runner.RemoveLeft] removes those that nobody holds, and cgroups of commands,
// which a worker that was killed could not. It removes no other name, and nothing of
// another user's that is not a tree's.
//
// # Hidden paths
//
// Landlock cannot subtract, so reading is granted to each sibling on the way to
// a hidden path, or to the temp directories, and not to the path. What is created
// next to these siblings during a call is unreadable to it. Names, not contents,
// can be listed there.
// Where a mount namespace can be had (by CAP_SYS_ADMIN, else by a user namespace),
// hidden paths are covered by an empty file system besides. This is the only way
// to hide what lies inside the workspace; where it cannot be had, or while the
// path does not exist, calls are refused. A hidden directory that is mounted a
// second time elsewhere is not hidden there.
//
// # Links
//
// Links are followed by every tool, and an operation is judged by where it ends.
// Another name of a file may lie outside, so file operations never change a file
// in place: the name that was asked for becomes a new file, and the result says
// how many other names keep the old content. Nor do they read a file of which
// another name is hidden. The kernel's fence cannot tell such names apart, so a
// shell command can read and change the file: what is hard-linked into the
// workspace, or mounted in it, beforehand is part of the workspace.
//
// # What is not promised
//
// This is not a virtual machine: the kernel's own faults, covert channels, and the
// use of memory, or of processor and disk by many processes, are out of its reach.
// Nor is it a firewall. The gaps that a result names are promises not kept:
//
//   - metadata: under workspace-write in tier landlock, mode, owner, times and
//     extended attributes of outside files of the same user can be changed.
//   - signals: below Landlock ABI 6 without namespaces, a command can signal
//     processes of the same user, the launcher included. Below ABI 3 nothing runs.
//   - hard-links: see above. A tree's own user cannot write what belongs to others.
//   - priority: the scheduling of other processes of the same user can be changed in
//     tier landlock, unless this process is root.
//   - shared-memory: without namespaces, System V segments that everybody may use.
//   - process-list: without namespaces, argument lists of all processes.
//   - file-locks: outside files that can be read can be locked.
//   - network: the network is the host's.
//
// And, everywhere:
//
//   - Shell commands read whatever their user can read and is not hidden. Access
//     times are changed by reading.
//   - No nested containers; no set-user-id programs; no programs of another
//     architecture; no openat2, which programs do without.
//   - What a call writes can do harm later, when somebody runs it unconfined.
//   - A call that is killed in the middle of a write can leave a file named
//     .entail-*.tmp beside the target. Nobody removes it: whose it is cannot be told
//     from it, and the next write may be another worker's.
//   - A denial reported for a shell command is a suspicion with good reason: it
//     failed, and its standard error speaks of one of the fence's errors.
//     Denials of file operations are exact.
//   - If the launcher itself is killed by somebody outside of the call, what the
//     call started lives on, as confined as it was.
//   - Between the launcher's last look at the lease and the start of the command
//     there is a moment; the command is then started once, and swept.
//
// Linux on amd64 is tested. Linux on arm64 has its own list of calls and is not
// tested. On other systems every call is refused.
package sandbox
