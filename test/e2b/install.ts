/** Installs the E2B SDKs that the tests of `test/e2b/` use. A second run does nothing. */
import { e2bPackages } from './environments.ts';

e2bPackages.install();
