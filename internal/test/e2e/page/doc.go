// Package page looks at the page of a relay in a real browser, Debian's Chromium, driven by chromedp. It is a module of
// its own, so that the relay's has no browser driver among its dependencies.
//
// It owns a relay in its own process, a small control plane above it, and clients below it that accept, reject or do
// not answer; and it makes the screenshots that people look at, and the picture of the README. It never looks at what
// only the relay's own tests can know. Limitations: it needs Chromium (CHROMIUM names its binary; else chromium is looked for
// in the PATH), and, for axe-core, npm.
package page
