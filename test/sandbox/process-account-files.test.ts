import { describeAccountFiles } from '../suites/account-files.ts';
import { otherUser, ProcessFixture } from './process-fixture.ts';

describeAccountFiles('files of a process sandbox', async () => new ProcessFixture().underTest(otherUser(true)));
