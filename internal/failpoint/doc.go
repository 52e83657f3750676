// Package failpoint names the points at which tests stop a process to kill it there. In
// an ordinary build a point is nothing. A build with the tag failpoints stops at the one
// that was armed: it makes the file "reached" in a directory and goes on once there is a
// file "go".
package failpoint
