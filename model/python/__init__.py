# The package samesum: what its parts are, and its names, which are fetched when they are first used.
# SPDX-License-Identifier: Apache-2.0
"""samesum: which order GPU collectives add in, predicted, proved, tested."""
