"""How do Spark's tasks get their rows as Arrow where pandas is not installed?

PySpark asks for pandas before it maps over Arrow, although neither side of that uses it. So the same call is made
here without the question. This module alone knows PySpark from the inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Batches = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def mapped(frame: DataFrame, over: Batches, schema: Any) -> DataFrame:
    """Call a function over the record batches of every partition."""
    if not hasattr(frame, "_jdf"):
        return frame.mapInArrow(over, schema)
    from pyspark.sql import DataFrame as Frame
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    function = UserDefinedFunction(over, returnType=schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column: Any = function(*(frame[f"`{name.replace('`', '``')}`"] for name in frame.columns))
    return Frame(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)


def framed(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Make a frame of an Arrow table."""
    return spark.createDataFrame(table)
