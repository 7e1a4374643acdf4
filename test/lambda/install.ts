/** Installs the packages that the tests of `test/lambda/` use. A second run does nothing. */
import { lambdaPackages } from './packages.ts';

lambdaPackages.install();
