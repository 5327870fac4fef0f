import os
import subprocess
import sys

import pytest

from tickwork._kernel.descriptors import DescriptorGuard


@pytest.fixture
def guard():
    made = DescriptorGuard()
    yield made
    made.close()


class TestDescriptorGuard:
    """It notices that other code has closed its descriptors."""

    def test_it_is_intact_at_first(self, guard):
        assert guard.is_intact()

    @pytest.mark.parametrize("which", [0, 1])
    def test_a_descriptor_that_was_closed(self, guard, which):
        os.close(guard._descriptors[which])

        assert not guard.is_intact()
        os.close(guard._descriptors[1 - which])

    def test_a_number_that_another_file_got(self, guard):
        number = guard._descriptors[0]
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, number)

        assert not guard.is_intact()
        guard.close()  # it closes no file of others
        os.fstat(number)
        for each in (null, *guard._descriptors):
            os.close(each)

    def test_code_that_closes_all(self):
        code = (
            "import os; from tickwork._kernel.descriptors import DescriptorGuard\n"
            "guard = DescriptorGuard(); os.closerange(3, 200); print(guard.is_intact())"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)

        assert done.stdout == b"False\n"
