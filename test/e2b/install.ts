/** Installs the E2B SDKs that the tests of `test/e2b/` use. A second run does nothing. */
import { installE2b } from './environments.ts';

installE2b();
