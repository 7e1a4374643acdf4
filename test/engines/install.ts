/** Installs Bun and Deno, which the tests of `test/engines/` use. A second run does nothing. */
import { enginePackages } from './engines.ts';

enginePackages.install();
