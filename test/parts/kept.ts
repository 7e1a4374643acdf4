import { tmpdir } from 'node:os';

/**
 * Where stands what outlives a run of the tests on purpose: tools and images that take minutes to make, and the locks that runs of one machine
 * share. Everything else is made in the temporary directory of the run, which `npm test` expects to be empty at its end.
 */
export const KEPT_DIR = process.env.ROOKERY_TEST_KEPT_DIR ?? tmpdir();
