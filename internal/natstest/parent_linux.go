package natstest

import (
	"os/exec"
	"syscall"
)

// endWithParent has the kernel end a process when this one is gone: a test that
// runs out of time cleans nothing up.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
