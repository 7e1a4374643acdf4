import { tmpdir } from 'node:os';

/**
 * Directory for files that outlive a test run on purpose: slow tools and images, and locks that runs on one
 * machine share. All other files are in the temporary directory of the run, which `npm test` expects to be
 * empty at its end.
 */
export const KEPT_DIR = process.env.ROOKERY_TEST_KEPT_DIR ?? tmpdir();
