// Package twin checks the relay against a dumb twin. It owns a reference model
// that knows nothing of how the relay works (model.go), a checker that reads every
// message between control plane, relay and clients (checker*.go, knowledge.go), and
// a game of random operations with an honest control plane and honest clients
// (game.go, script.go, controlplane.go, player.go). Only tests use it.
//
// A game is a script: settings, and one operation a line. It is played on the pure
// cores (pure_test.go) and against a whole relay over gRPC (live_test.go). Every
// operation can be played at any time, so that a script that fails is made short by
// leaving lines out, and a seed stays of use when the generator changes.
//
// Half of the games have a control plane that is not plain (servers.go), or that hangs
// (hang.go), or two of them, of which the last is reachable at the end.
//
// While the game goes on, the checker judges every message. At the end the control
// plane says all that it has to say, the clients read and ACK, time passes, and
// every client must hold what the twin says: the control plane's world, filtered by
// the client's interest.
//
// docs/testing.md lists where the checker accepts more than one outcome, and what the games
// do not play, each with its rule. Each reason for which a name had no answer is printed with
// its count at the end of a run (checker_wait.go).
//
// What it never does: it does not look into the relay, and does not know of nonces
// beyond that they are unique, of positions, or of how interest is kept.
//
// Limitations: a client has one aggregated stream. Latency and memory are not
// measured here.
package twin
