// Package loopback owns the addresses that end-to-end tests listen on and dial. It is for
// tests only, and never listens itself.
//
// Limitation: only on Linux does an address stay the test's own while nobody listens on it.
package loopback
