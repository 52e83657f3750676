//go:build linux && (amd64 || arm64)

package sandbox_test

// expected says how every attempt of package attack ends in every configuration, with
// no network. A means that it gets through, A* that something outside has changed
// then; anything else is what refuses it. Two with a stroke between them are for a host
// that has either: an option of its kernel, a setting such as who may trace whom.
//
// The first two columns are a worker's own child, as root and as an ordinary user:
// there the attempts have to work, or their rows show nothing. Those that take root are
// shown by root's, and the two that only the broker refuses by the one with the key.
//
// The cells were written from what the kernel and each fence are known to do, and not
// from a run: a run that ends otherwise has found something. In short,
//
//	landlock    keeps content; metadata it does not, nor, for an ordinary user,
//	            priorities
//	uid         has no capability and owns nothing outside: Landlock's answers where
//	            it is asked first, EPERM for what takes an owner
//	namespaces  show no process, no segment and nothing hidden (ENOENT, ESRCH); EROFS
//	            is the mounts' answer, which comes before Landlock's, and EXDEV that
//	            the workspace is a mount of its own. Other trees' workspaces are
//	            hidden by the rules alone: there can be many
//
// and the filter answers before all of them. Unix sockets are refused under every
// network, flags by name (file_setattr) as by ioctl, and a workspace under read-only is
// itself mounted read-only: there this fence differs from others that were measured.
const expected = `
#                               plain           | workspace-write                         | read-only
#                                               | landlock        uid     namespaces      | landlock        uid     namespaces
#                               root    user    | root    user    root    root    user    | root    user    root    root    user
fs/write                        A*      A*      | EACCES  EACCES  EACCES  EROFS   EROFS   | EACCES  EACCES  EACCES  EROFS   EROFS
fs/truncate-by-opening          A*      A*      | EACCES  EACCES  EACCES  EACCES  EACCES  | EACCES  EACCES  EACCES  EACCES  EACCES
fs/truncate                     A*      A*      | EACCES  EACCES  EACCES  EROFS   EROFS   | EACCES  EACCES  EACCES  EROFS   EROFS
fs/create                       A*      A*      | EACCES  EACCES  EACCES  EROFS   EROFS   | EACCES  EACCES  EACCES  EROFS   EROFS
fs/create-without-name          A*      A*      | EACCES  EACCES  EACCES  EROFS   EROFS   | EACCES  EACCES  EACCES  EROFS   EROFS
fs/make-directory               A*      A*      | EACCES  EACCES  EACCES  EROFS   EROFS   | EACCES  EACCES  EACCES  EROFS   EROFS
fs/remove-directory             A*      A*      | EACCES  EACCES  EACCES  EROFS   EROFS   | EACCES  EACCES  EACCES  EROFS   EROFS
fs/remove                       A*      A*      | EACCES  EACCES  EACCES  EROFS   EROFS   | EACCES  EACCES  EACCES  EROFS   EROFS
fs/make-symlink                 A*      A*      | EACCES  EACCES  EACCES  EROFS   EROFS   | EACCES  EACCES  EACCES  EROFS   EROFS
fs/make-fifo                    A*      A*      | EACCES  EACCES  EACCES  EROFS   EROFS   | EACCES  EACCES  EACCES  EROFS   EROFS
fs/link-in-and-write            A*      A*      | EXDEV   EXDEV   EPERM   EXDEV   EXDEV   | EACCES  EACCES  EPERM   EROFS   EROFS
fs/link-out                     A*      A*      | EACCES  EACCES  EACCES  EROFS   EROFS   | EACCES  EACCES  EACCES  EROFS   EROFS
fs/rename-over                  A*      A*      | EACCES  EACCES  EACCES  EXDEV   EXDEV   | EACCES  EACCES  EACCES  EROFS   EROFS
fs/rename-in                    A*      A*      | EACCES  EACCES  EACCES  EXDEV   EXDEV   | EACCES  EACCES  EACCES  EROFS   EROFS
fs/exchange                     A*      A*      | EACCES  EACCES  EACCES  EXDEV   EXDEV   | EACCES  EACCES  EACCES  EROFS   EROFS
fs/write-by-symlink             A*      A*      | EACCES  EACCES  EACCES  EROFS   EROFS   | EACCES  EACCES  EACCES  EROFS   EROFS
fs/write-by-linked-directory    A*      A*      | EACCES  EACCES  EACCES  EROFS   EROFS   | EACCES  EACCES  EACCES  EROFS   EROFS
fs/write-by-dots                A*      A*      | EACCES  EACCES  EACCES  EROFS   EROFS   | EACCES  EACCES  EACCES  EROFS   EROFS
fs/write-old-hard-link          A*      A*      | A*      A*      EACCES  A*      A*      | EACCES  EACCES  EACCES  EROFS   EROFS
fs/write-where-mounted          A*      A*      | A*      A*      EACCES  A*      A*      | EACCES  EACCES  EACCES  EROFS   EROFS
fs/write-by-own-root            A*      A*      | EACCES  EACCES  EACCES  EROFS   EROFS   | EACCES  EACCES  EACCES  EROFS   EROFS
fs/write-by-victims-root        A*      A*      | EACCES  EACCES  EACCES  ENOENT  ENOENT  | EACCES  EACCES  EACCES  ENOENT  ENOENT
fs/chmod-by-victims-root        A*      A*      | EACCES  EACCES  EACCES  ENOENT  ENOENT  | EROFS   EROFS   EROFS   EROFS   EROFS
fs/write-by-victims-cwd         A*      A*      | EACCES  EACCES  EACCES  ENOENT  ENOENT  | EACCES  EACCES  EACCES  ENOENT  ENOENT
fs/write-what-is-held           A*      A*      | EACCES  EACCES  EACCES  ENOENT  ENOENT  | EACCES  EACCES  EACCES  ENOENT  ENOENT
fs/open-by-handle               A*      EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
fd/open-below-directory         A*      A*      | EBADF   EBADF   EBADF   EBADF   EBADF   | EBADF   EBADF   EBADF   EBADF   EBADF
fd/reopen-for-writing           A*      A*      | EBADF   EBADF   EBADF   EBADF   EBADF   | EBADF   EBADF   EBADF   EBADF   EBADF
fd/write                        A*      A*      | EBADF   EBADF   EBADF   EBADF   EBADF   | EBADF   EBADF   EBADF   EBADF   EBADF
fd/truncate                     A*      A*      | EBADF   EBADF   EBADF   EBADF   EBADF   | EBADF   EBADF   EBADF   EBADF   EBADF
fd/chmod                        A*      A*      | EBADF   EBADF   EBADF   EBADF   EBADF   | EBADF   EBADF   EBADF   EBADF   EBADF
meta/chmod                      A*      A*      | A*      A*      EPERM   EROFS   EROFS   | EROFS   EROFS   EROFS   EROFS   EROFS
meta/chmod-opened               A*      A*      | A*      A*      EPERM   EROFS   EROFS   | EROFS   EROFS   EROFS   EROFS   EROFS
meta/chmod-named-by-descriptor  A*      A*      | A*      A*      EPERM   EROFS   EROFS   | EROFS   EROFS   EROFS   EROFS   EROFS
meta/chown                      A*      A       | A*      A       EPERM   EROFS   EROFS   | EROFS   EROFS   EROFS   EROFS   EROFS
meta/set-times                  A*      A*      | A*      A*      EPERM   EROFS   EROFS   | EROFS   EROFS   EROFS   EROFS   EROFS
meta/set-attribute              A*      A*      | A*      A*      EACCES  EROFS   EROFS   | EROFS   EROFS   EROFS   EROFS   EROFS
meta/set-flags                  A*      A*      | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
meta/set-flags-by-name          A*      A*      | EPERM   EPERM   EPERM   EPERM   EPERM   | EROFS   EROFS   EROFS   EROFS   EROFS
meta/lock                       A       A       | A       A       A       A       A       | A       A       A       A       A
inside/write                    A       A       | A       A       A       A       A       | EACCES  EACCES  EACCES  EROFS   EROFS
inside/rename-across            A       A       | A       A       A       A       A       | EACCES  EACCES  EACCES  EROFS   EROFS
inside/link                     A       A       | A       A       A       A       A       | EACCES  EACCES  EACCES  EROFS   EROFS
inside/chmod                    A       A       | A       A       A       A       A       | EROFS   EROFS   EROFS   EROFS   EROFS
inside/set-times                A       A       | A       A       A       A       A       | EROFS   EROFS   EROFS   EROFS   EROFS
inside/make-fifo                A       A       | A       A       A       A       A       | EACCES  EACCES  EACCES  EROFS   EROFS
inside/write-temp               A       A       | A       A       A       A       A       | EACCES  EACCES  EACCES  EROFS   EROFS
inside/write-hosts-temp         A       A       | EACCES  EACCES  EACCES  EROFS   EROFS   | EACCES  EACCES  EACCES  EROFS   EROFS
inside/write-shared-memory      A       A       | EACCES  EACCES  EACCES  A       A       | EACCES  EACCES  EACCES  EROFS   EROFS
inside/write-null               A       A       | A       A       A       A       A       | A       A       A       A       A
inside/reopen-stderr            A       A       | A       A       A       A       A       | A       A       A       A       A
inside/open-terminal            A       A       | EACCES  EACCES  EACCES  EACCES  EACCES  | EACCES  EACCES  EACCES  EACCES  EACCES
inside/trace-own-child          A       A       | A       A       A       A       A       | A       A       A       A       A
inside/talk-to-child            A       A       | A       A       A       A       A       | A       A       A       A       A
inside/truncate-for-reading     A       A       | EACCES  EACCES  EACCES  EACCES  EACCES  | EACCES  EACCES  EACCES  EACCES  EACCES
inside/truncate-for-neither     A       A       | EACCES  EACCES  EACCES  EACCES  EACCES  | EACCES  EACCES  EACCES  EACCES  EACCES
inside/truncate-by-openat2      A       A       | ENOSYS  ENOSYS  ENOSYS  ENOSYS  ENOSYS  | ENOSYS  ENOSYS  ENOSYS  ENOSYS  ENOSYS
dev/make-character-device       A       EPERM   | EACCES  EACCES  EACCES  EACCES  EACCES  | EACCES  EACCES  EACCES  EROFS   EROFS
dev/make-block-device           A       EPERM   | EACCES  EACCES  EACCES  EACCES  EACCES  | EACCES  EACCES  EACCES  EROFS   EROFS
dev/open-kernel-log             A       EACCES  | EACCES  EACCES  EACCES  EACCES  EACCES  | EACCES  EACCES  EACCES  EACCES  EACCES
dev/open-sysctl                 A       EACCES  | EACCES  EACCES  EACCES  EACCES  EACCES  | EACCES  EACCES  EACCES  EACCES  EACCES
dev/open-victims-score          A       A       | EACCES  EACCES  EACCES  ENOENT  ENOENT  | EACCES  EACCES  EACCES  ENOENT  ENOENT
dev/open-cgroup                 A       EACCES  | EACCES  EACCES  EACCES  EROFS   EACCES  | EACCES  EACCES  EACCES  EROFS   EACCES
ns/unmount-outside              A*      EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
ns/mount                        A       EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
ns/mount-outside-in             A       EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
ns/remount-writable             A       EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
ns/open-file-system             A       EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
ns/clone-tree                   A       EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
ns/unshare-mounts               A       EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
ns/clone-user-and-write         A*      A*      | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
ns/join-victims-mounts          A       EPERM   | EACCES  EACCES  EACCES  ENOENT  ENOENT  | EACCES  EACCES  EACCES  ENOENT  ENOENT
ns/change-root                  A       EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
proc/signal                     A       A       | EPERM   EPERM   EPERM   ESRCH   ESRCH   | EPERM   EPERM   EPERM   ESRCH   ESRCH
proc/signal-by-descriptor       A       A       | EPERM   EPERM   EPERM   ESRCH   ESRCH   | EPERM   EPERM   EPERM   ESRCH   ESRCH
proc/own-a-signal               A       A       | A       A       A       ESRCH   ESRCH   | A       A       A       ESRCH   ESRCH
proc/trace                      A       A/EPERM | EPERM   EPERM   EPERM   ESRCH   ESRCH   | EPERM   EPERM   EPERM   ESRCH   ESRCH
proc/read-memory                A       A/EPERM | EPERM   EPERM   EPERM   ESRCH   ESRCH   | EPERM   EPERM   EPERM   ESRCH   ESRCH
proc/open-memory-for-writing    A       A/EACCES | EACCES  EACCES  EACCES  ENOENT  ENOENT  | EACCES  EACCES  EACCES  ENOENT  ENOENT
proc/read-memory-by-file        A       A/EACCES | EACCES  EACCES  EACCES  ENOENT  ENOENT  | EACCES  EACCES  EACCES  ENOENT  ENOENT
proc/read-environment           A       A       | EACCES  EACCES  EACCES  ENOENT  ENOENT  | EACCES  EACCES  EACCES  ENOENT  ENOENT
proc/read-arguments             A       A       | A       A       A       ENOENT  ENOENT  | A       A       A       ENOENT  ENOENT
proc/take-descriptor            A       A/EPERM | EPERM   EPERM   EPERM   ESRCH   ESRCH   | EPERM   EPERM   EPERM   ESRCH   ESRCH
proc/set-limit                  A       A       | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
proc/set-priority               A       A       | EPERM   A       EPERM   ESRCH   ESRCH   | EPERM   A       EPERM   ESRCH   ESRCH
proc/set-processors             A       A       | EPERM   A       EPERM   ESRCH   ESRCH   | EPERM   A       EPERM   ESRCH   ESRCH
proc/become-root                A       EPERM   | A       EPERM   EPERM   A       EINVAL  | A       EPERM   EPERM   A       EINVAL
proc/run-as-root                A       A       | A       NOTHING NOTHING A       NOTHING | A       NOTHING NOTHING A       NOTHING
ipc/write-shared-segment        A       A       | A       A       A       ENOENT  ENOENT  | A       A       A       ENOENT  ENOENT
ipc/add-key                     A       A       | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
net/tcp                         A       A       | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
net/multipath-tcp               A       A       | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
net/tcp-fast-open               A       A       | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
net/tcp-to-self                 A       A       | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
net/tcp6-to-self                A       A       | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
net/udp                         A       A       | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
net/raw                         A       EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
net/packet                      A       EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
net/netlink                     A       A       | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
net/vsock                       A       A       | EAFNOSUPPORT EAFNOSUPPORT EAFNOSUPPORT EAFNOSUPPORT EAFNOSUPPORT | EAFNOSUPPORT EAFNOSUPPORT EAFNOSUPPORT EAFNOSUPPORT EAFNOSUPPORT
net/kernel-crypto               A/EAFNOSUPPORT A/EAFNOSUPPORT | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
net/unix-stream                 A       A       | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
net/unix-datagram               A       A       | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
net/unix-datagram-by-pair       A       A       | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
net/unix-abstract               A       A       | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
net/unix-to-self                A       A       | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
net/unix-take-and-write         A*      A*      | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
kern/ring                       A       A       | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
kern/ring-open-and-write        A*      A*      | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
kern/ring-socket                A       A       | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
kern/load-program               A       EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
kern/count-events               A       A       | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
kern/account-processes          A*      EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
kern/set-host-name              A       EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
kern/handle-page-faults         A       A       | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
kern/watch-file-systems         A       A       | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
kern/read-log                   A       A/EPERM | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
kern/run-from-memory-and-write  A*      A*      | EACCES  EACCES  EACCES  EROFS   EROFS   | EACCES  EACCES  EACCES  EROFS   EROFS
read/shadow                     A       EACCES  | A       EACCES  EACCES  A       EACCES  | A       EACCES  EACCES  A       EACCES
read/outside                    A       A       | A       A       A       A       A       | A       A       A       A       A
worker/environment              A       A       | EACCES  EACCES  EACCES  ENOENT  ENOENT  | EACCES  EACCES  EACCES  ENOENT  ENOENT
worker/maps                     A       A       | EACCES  EACCES  EACCES  ENOENT  ENOENT  | EACCES  EACCES  EACCES  ENOENT  ENOENT
worker/auxiliary-vector         A       A       | EACCES  EACCES  EACCES  ENOENT  ENOENT  | EACCES  EACCES  EACCES  ENOENT  ENOENT
worker/memory                   A       A/EACCES | EACCES  EACCES  EACCES  ENOENT  ENOENT  | EACCES  EACCES  EACCES  ENOENT  ENOENT
worker/memory-for-writing       A       A/EACCES | EACCES  EACCES  EACCES  ENOENT  ENOENT  | EACCES  EACCES  EACCES  ENOENT  ENOENT
worker/descriptors              A       A       | EACCES  EACCES  EACCES  ENOENT  ENOENT  | EACCES  EACCES  EACCES  ENOENT  ENOENT
worker/leaked-descriptor        A       A       | EACCES  EACCES  EACCES  ENOENT  ENOENT  | EACCES  EACCES  EACCES  ENOENT  ENOENT
worker/root                     A       A       | EACCES  EACCES  EACCES  ENOENT  ENOENT  | EACCES  EACCES  EACCES  ENOENT  ENOENT
worker/trace                    A       A/EPERM | EPERM   EPERM   EPERM   ESRCH   ESRCH   | EPERM   EPERM   EPERM   ESRCH   ESRCH
worker/signal                   A       A       | EPERM   EPERM   EPERM   ESRCH   ESRCH   | EPERM   EPERM   EPERM   ESRCH   ESRCH
worker/limit                    A       A       | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
worker/own-environment          A       A       | NOTHING NOTHING NOTHING NOTHING NOTHING | NOTHING NOTHING NOTHING NOTHING NOTHING
launcher/environment            A       A       | EACCES  EACCES  EACCES  EACCES  EACCES  | EACCES  EACCES  EACCES  EACCES  EACCES
launcher/maps                   A       A       | EACCES  EACCES  EACCES  EACCES  EACCES  | EACCES  EACCES  EACCES  EACCES  EACCES
launcher/memory                 A       A/EACCES | EACCES  EACCES  EACCES  EACCES  EACCES  | EACCES  EACCES  EACCES  EACCES  EACCES
launcher/descriptors            A       A       | EACCES  EACCES  EACCES  EACCES  EACCES  | EACCES  EACCES  EACCES  EACCES  EACCES
launcher/out-by-descriptor      A       A       | EACCES  EACCES  EACCES  EACCES  EACCES  | EACCES  EACCES  EACCES  EACCES  EACCES
launcher/root                   A       A       | EACCES  EACCES  EACCES  EACCES  EACCES  | EACCES  EACCES  EACCES  EACCES  EACCES
launcher/signal                 A       A       | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
launcher/trace                  A       A/EPERM | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
launcher/trace-a-thread         A       A/EPERM | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
launcher/signal-a-thread        A       A       | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
launcher/memory-of-a-thread     A       A/EACCES | EACCES  EACCES  EACCES  EACCES  EACCES  | EACCES  EACCES  EACCES  EACCES  EACCES
launcher/environment-of-a-thread A       A       | EACCES  EACCES  EACCES  EACCES  EACCES  | EACCES  EACCES  EACCES  EACCES  EACCES
launcher/take-descriptor        A       A/EPERM | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
launcher/limit                  A       A       | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
data/read-key                   A       A       | EACCES  EACCES  EACCES  ENOENT  ENOENT  | EACCES  EACCES  EACCES  ENOENT  ENOENT
data/read-token                 A       A       | EACCES  EACCES  EACCES  ENOENT  ENOENT  | EACCES  EACCES  EACCES  ENOENT  ENOENT
data/list                       A       A       | A       A       EACCES  ENOENT  ENOENT  | A       A       EACCES  ENOENT  ENOENT
data/list-store                 A       A       | A       A       EACCES  ENOENT  ENOENT  | A       A       EACCES  ENOENT  ENOENT
data/read-store                 A       A       | EACCES  EACCES  EACCES  ENOENT  ENOENT  | EACCES  EACCES  EACCES  ENOENT  ENOENT
data/write-store                A*      A*      | EACCES  EACCES  EACCES  ENOENT  ENOENT  | EACCES  EACCES  EACCES  ENOENT  ENOENT
data/chmod-key                  A*      A*      | A*      A*      EACCES  ENOENT  ENOENT  | EROFS   EROFS   EROFS   EROFS   EROFS
data/read-by-own-root           A       A       | EACCES  EACCES  EACCES  ENOENT  ENOENT  | EACCES  EACCES  EACCES  ENOENT  ENOENT
data/link-and-read              A*      A*      | EXDEV   EXDEV   EACCES  ENOENT  ENOENT  | EACCES  EACCES  EACCES  ENOENT  ENOENT
data/symlink-and-read           A       A       | EACCES  EACCES  EACCES  ENOENT  ENOENT  | EACCES  EACCES  EACCES  EROFS   EROFS
data/rename-file-and-read       A*      A*      | EACCES  EACCES  EACCES  ENOENT  ENOENT  | EACCES  EACCES  EACCES  ENOENT  ENOENT
data/rename-all-and-read        A       A       | EACCES  EACCES  EACCES  EXDEV   EXDEV   | EACCES  EACCES  EACCES  EROFS   EROFS
data/exchange-and-read          A*      A*      | EACCES  EACCES  EACCES  ENOENT  ENOENT  | EACCES  EACCES  EACCES  ENOENT  ENOENT
data/uncover-and-read           A       A       | EACCES  EACCES  EACCES  ENOENT  ENOENT  | EACCES  EACCES  EACCES  ENOENT  ENOENT
data/read-key-as-root           A       A       | EACCES  EACCES  EACCES  ENOENT  ENOENT  | EACCES  EACCES  EACCES  ENOENT  ENOENT
tree/read-workspace             A       A       | EACCES  EACCES  EACCES  EACCES  EACCES  | EACCES  EACCES  EACCES  EACCES  EACCES
tree/write-workspace            A*      A*      | EACCES  EACCES  EACCES  EROFS   EROFS   | EACCES  EACCES  EACCES  EROFS   EROFS
tree/chmod-in-workspace         A*      A*      | A*      A*      EPERM   EROFS   EROFS   | EROFS   EROFS   EROFS   EROFS   EROFS
tree/read-temp                  A       A       | EACCES  EACCES  EACCES  EACCES  EACCES  | EACCES  EACCES  EACCES  EACCES  EACCES
tree/write-temp                 A*      A*      | EACCES  EACCES  EACCES  EROFS   EROFS   | EACCES  EACCES  EACCES  EROFS   EROFS
tree/rename-from-temp           A*      A*      | EACCES  EACCES  EACCES  EXDEV   EXDEV   | EACCES  EACCES  EACCES  EROFS   EROFS
broker/connect                  A       A       | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
broker/publish                  REFUSED REFUSED | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
broker/subscribe                REFUSED REFUSED | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
broker/sign-in-with-workers-key A       A       | EACCES  EACCES  EACCES  ENOENT  ENOENT  | EACCES  EACCES  EACCES  ENOENT  ENOENT
arch/32-bit-socket              A       A       | SIGSYS  SIGSYS  SIGSYS  SIGSYS  SIGSYS  | SIGSYS  SIGSYS  SIGSYS  SIGSYS  SIGSYS
arch/x32-socket                 A/ENOSYS A/ENOSYS | ENOSYS  ENOSYS  ENOSYS  ENOSYS  ENOSYS  | ENOSYS  ENOSYS  ENOSYS  ENOSYS  ENOSYS
arch/truncate-by-old-open       A       A       | EACCES  EACCES  EACCES  EACCES  EACCES  | EACCES  EACCES  EACCES  EACCES  EACCES
arch/old-chmod                  A*      A*      | A*      A*      EPERM   EROFS   EROFS   | EROFS   EROFS   EROFS   EROFS   EROFS
arch/old-chown                  A*      A       | A*      A       EPERM   EROFS   EROFS   | EROFS   EROFS   EROFS   EROFS   EROFS
arch/old-lchown                 A*      A       | A*      A       EPERM   EROFS   EROFS   | EROFS   EROFS   EROFS   EROFS   EROFS
arch/old-utime                  A*      A*      | A*      A*      EACCES  EROFS   EROFS   | EROFS   EROFS   EROFS   EROFS   EROFS
arch/old-utimes                 A*      A*      | A*      A*      EACCES  EROFS   EROFS   | EROFS   EROFS   EROFS   EROFS   EROFS
arch/reach-ports                A/ENOSYS EPERM/ENOSYS | EPERM   EPERM   EPERM   EPERM   EPERM   | EPERM   EPERM   EPERM   EPERM   EPERM
`

// networked says what another network than none changes, in every tier and mode: the
// first column is for allow, the second for loopback. A broker that is reached has to
// refuse whoever has no key.
const networked = `
net/tcp                A             ECONNREFUSED
net/multipath-tcp      A             ECONNREFUSED
net/tcp-fast-open      A             ECONNREFUSED
net/tcp-to-self        A             A
net/tcp6-to-self       A             A
net/udp                A             A
net/netlink            A             A
broker/connect         A             ECONNREFUSED
broker/publish         REFUSED       ECONNREFUSED
broker/subscribe       REFUSED       ECONNREFUSED
`
