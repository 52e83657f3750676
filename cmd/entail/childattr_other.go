//go:build !linux

package main

import "syscall"

// childAttr leaves it to the end of the order's descriptor to end a process of
// the deployment when this one dies.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
