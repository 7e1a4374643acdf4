/** Installs the SDKs of E2B and MCP that the tests of `test/e2b/` use. A second run does nothing. */
import { e2bPackages } from './environments.ts';

e2bPackages.install();
