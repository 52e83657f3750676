// Package node wires the packages of the project into the three kinds of process
// that a deployment is made of, so that every command starts them the same way:
//
//	Embedded     a broker in this process, provisioned, for one machine
//	Coordinator  the service with its mirror
//	Worker       a driver of turns with its fence
//
// # Handing over
//
// A process is started with an [Order] on an inherited descriptor: its
// configuration, its broker credentials and the keys of model endpoints. None of
// it is in its arguments, in its environment or in a file. The descriptor stays
// open for as long as whoever started the process lives; its end tells the
// process to stop ([Bind]).
//
// Only commands import this package.
package node
