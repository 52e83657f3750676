// Package confined runs the tests of package sandbox where people run workers: as
// root and as an ordinary user, with nothing left to gain, and in containers under
// Docker's default profile. They are told where they are, so a tier of confinement
// that is missing there fails as loudly as one that does not hold.
//
// It has tests only. They take root, setpriv, runc and, for one of them, a Docker
// engine; `make confined` and `make confined-engine` run them.
package confined
