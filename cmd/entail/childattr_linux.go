package main

import "syscall"

// childAttr has the kernel end a process of the deployment when this one dies,
// however it dies.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
