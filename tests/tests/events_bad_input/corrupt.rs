//! Somebody writes over the shared page: the process says so and ends, or goes on, but never runs a virtual processor twice.
